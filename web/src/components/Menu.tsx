import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface MenuItem {
  label: ComponentChildren;
  /** A link, or what to do. */
  href?: string;
  download?: boolean;
  run?: () => void;
  because?: string | undefined;
}

/** A button that opens a short list of things to do. */
export function Menu({
  label,
  items,
  kind = "plain",
}: {
  label: ComponentChildren;
  items: readonly MenuItem[];
  kind?: "plain" | "quiet";
}) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    (box.current?.querySelector("[role=menuitem]") as HTMLElement | null)?.focus();
    const close = (event: Event) => !box.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [open]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return;
    const all = [...(box.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      all[(next + all.length) % all.length]?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      if (event.key === "Escape") event.preventDefault();
      setOpen(false);
      (box.current?.querySelector("button") as HTMLElement | null)?.focus();
    }
  };
  return (
    <div class="menu" ref={box} onKeyDown={onKeyDown}>
      <button
        type="button"
        class={`button ${kind}`}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open && (
        <div role="menu" id={id} class="menu-list">
          {items.map((item, index) =>
            item.href !== undefined ? (
              <a key={index} role="menuitem" href={item.href} download={item.download} onClick={() => setOpen(false)}>
                {item.label}
              </a>
            ) : (
              <button
                key={index}
                type="button"
                role="menuitem"
                disabled={item.because !== undefined}
                title={item.because}
                onClick={() => {
                  setOpen(false);
                  item.run?.();
                }}
              >
                {item.label}
              </button>
            ),
          )}
        </div>
      )}
    </div>
  );
}
