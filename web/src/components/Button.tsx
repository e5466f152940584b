import type { ComponentChildren, JSX } from "preact";

interface Props extends Omit<JSX.HTMLAttributes<HTMLButtonElement>, "size"> {
  kind?: "plain" | "primary" | "quiet" | "danger";
  /** Says why it cannot be used now; the button is then disabled and shows the reason. */
  because?: string | undefined;
  busy?: boolean;
  type?: "button" | "submit";
  disabled?: boolean;
  children: ComponentChildren;
}

/** A button. A link to a page is an `<a>`, and looks like one, or like a button by `class="button"`. */
export function Button({ kind = "plain", because, busy, disabled, type = "button", children, ...rest }: Props) {
  return (
    <button
      {...rest}
      type={type}
      class={`button ${kind} ${String(rest.class ?? "")}`}
      disabled={disabled || busy || because !== undefined}
      title={because ?? rest.title}
      aria-busy={busy}
    >
      {children}
    </button>
  );
}
