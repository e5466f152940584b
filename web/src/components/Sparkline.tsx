interface Props {
  values: readonly number[];
  /** What it shows, for those who do not see it. */
  label: string;
  width?: number;
  height?: number;
  tone?: "accent" | "error";
}

/** A line the size of a word. */
export function Sparkline({ values, label, width = 120, height = 28, tone = "accent" }: Props) {
  const most = Math.max(1e-9, ...values);
  const step = values.length > 1 ? width / (values.length - 1) : width;
  const points = values.map(
    (value, index) => `${(index * step).toFixed(1)},${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`,
  );
  return (
    <svg class={`sparkline ${tone}`} width={width} height={height} role="img" aria-label={label}>
      {points.length > 1 && <polygon points={`0,${height} ${points.join(" ")} ${width},${height}`} />}
      <polyline points={points.join(" ")} />
    </svg>
  );
}
