import type { ComponentChildren } from "preact";
import { useId, useRef } from "preact/hooks";

interface Props<T extends string> {
  label: string;
  value: T;
  onChange: (value: T) => void;
  tabs: readonly { value: T; label: ComponentChildren }[];
  children: ComponentChildren;
}

/** Tabs over one panel, whose content the caller chooses by `value`; keep that in the address. */
export function Tabs<T extends string>({ label, value, onChange, tabs, children }: Props<T>) {
  const id = useId();
  const bar = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const at = tabs.findIndex((tab) => tab.value === value);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const place = (next + tabs.length) % tabs.length;
    onChange(tabs[place]!.value);
    (bar.current?.children[place] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} ref={bar} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.value}
            type="button"
            role="tab"
            id={`${id}-${tab.value}`}
            aria-selected={tab.value === value}
            aria-controls={`${id}-panel`}
            tabIndex={tab.value === value ? 0 : -1}
            onClick={() => onChange(tab.value)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${value}`} tabIndex={0}>
        {children}
      </div>
    </div>
  );
}
