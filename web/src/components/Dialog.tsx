import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  /** The buttons at its foot. */
  actions?: ComponentChildren;
  wide?: boolean;
  children: ComponentChildren;
}

/** A window over the page; Escape closes it, and the focus returns to where it was. Render it only while it is open. */
export function Dialog({ title, onClose, actions, wide, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const own = dialog.current;
    const before = document.activeElement;
    own?.showModal();
    return () => {
      // What lies under an open dialog takes no focus.
      own?.close();
      (before as HTMLElement | null)?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "wide" : undefined}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-head">
        <h2>{title}</h2>
        <button type="button" class="button quiet" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </div>
      <div class="dialog-body">{children}</div>
      {actions && <div class="dialog-foot">{actions}</div>}
    </dialog>
  );
}
