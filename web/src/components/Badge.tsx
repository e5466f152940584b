import type { ComponentChildren } from "preact";

export type Tone = "neutral" | "ok" | "warn" | "error" | "running";

// A shape beside the colour: nobody needs to see colours to tell them apart.
export const SHAPES: Record<Tone, string> = { neutral: "", ok: "✓", warn: "▲", error: "✕", running: "●" };

interface Props {
  tone?: Tone;
  title?: string;
  children: ComponentChildren;
}

/** A short state: what it is as text, and as a shape. */
export function Badge({ tone = "neutral", title, children }: Props) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {SHAPES[tone] && (
        <span aria-hidden="true" class="shape">
          {SHAPES[tone]}
        </span>
      )}
      {children}
    </span>
  );
}

/** A dot in the colour of a name, beside the name. */
export function Swatch({ index }: { index: number }) {
  return <span class="swatch" aria-hidden="true" style={{ background: `var(--series-${index})` }} />;
}
