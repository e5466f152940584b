import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  /** Hides the label from eyes, not from screen readers. */
  hideLabel?: boolean;
  hint?: ComponentChildren;
  error?: string | undefined;
}

function Wrapped(props: FieldProps & { id: string; children: ComponentChildren }) {
  return (
    <div class="field">
      <label for={props.id} class={props.hideLabel ? "visually-hidden" : undefined}>
        {props.label}
      </label>
      {props.children}
      {props.hint && (
        <div class="hint" id={`${props.id}-hint`}>
          {props.hint}
        </div>
      )}
      {props.error && (
        <div class="field-error" id={`${props.id}-error`}>
          ✕ {props.error}
        </div>
      )}
    </div>
  );
}

function described(id: string, props: FieldProps): Record<string, string | boolean | undefined> {
  const by = [props.hint ? `${id}-hint` : "", props.error ? `${id}-error` : ""].filter(Boolean).join(" ");
  return { "aria-describedby": by || undefined, "aria-invalid": props.error ? true : undefined };
}

type TextProps = FieldProps & {
  value: string;
  onInput: (value: string) => void;
  /** Suggestions that the browser offers while one types. */
  suggestions?: readonly string[];
  type?: "text" | "search" | "password" | "number" | "date" | "datetime-local";
  inputRef?: JSX.HTMLAttributes<HTMLInputElement>["ref"];
} & Pick<
    JSX.InputHTMLAttributes<HTMLInputElement>,
    | "placeholder"
    | "autocomplete"
    | "onKeyDown"
    | "onBlur"
    | "min"
    | "max"
    | "step"
    | "disabled"
    | "required"
    | "spellcheck"
    | "class"
  >;

/** A line of text. */
export function TextField({
  label,
  hideLabel,
  hint,
  error,
  value,
  onInput,
  suggestions,
  inputRef,
  ...rest
}: TextProps) {
  const id = useId();
  const field = { label, hint, error, ...(hideLabel ? { hideLabel } : {}) };
  return (
    <Wrapped id={id} {...field}>
      <input
        {...rest}
        {...described(id, field)}
        id={id}
        ref={inputRef as never}
        value={value}
        list={suggestions ? `${id}-list` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {suggestions && (
        <datalist id={`${id}-list`}>
          {suggestions.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      )}
    </Wrapped>
  );
}

interface AreaProps extends FieldProps {
  value: string;
  onInput: (value: string) => void;
  rows?: number;
  placeholder?: string;
}

/** Several lines of text. */
export function TextArea({ value, onInput, rows = 4, placeholder, ...field }: AreaProps) {
  const id = useId();
  return (
    <Wrapped id={id} {...field}>
      <textarea
        {...described(id, field)}
        id={id}
        rows={rows}
        placeholder={placeholder}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </Wrapped>
  );
}

interface SelectProps<T extends string> extends FieldProps {
  value: T;
  onChange: (value: T) => void;
  /** Texts, or pairs of a value and what it is called. */
  options: readonly (T | readonly [T, string])[];
  disabled?: boolean;
}

/** One of a few. */
export function Select<T extends string>({ value, onChange, options, disabled, ...field }: SelectProps<T>) {
  const id = useId();
  return (
    <Wrapped id={id} {...field}>
      <select
        {...described(id, field)}
        id={id}
        value={value}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.value as T)}
      >
        {options.map((option) => {
          const [own, name] = typeof option === "string" ? [option, option] : option;
          return (
            <option key={own} value={own}>
              {name}
            </option>
          );
        })}
      </select>
    </Wrapped>
  );
}

interface CheckboxProps {
  label: ComponentChildren;
  checked: boolean;
  onChange: (checked: boolean) => void;
  disabled?: boolean;
}

export function Checkbox({ label, checked, onChange, disabled }: CheckboxProps) {
  return (
    <label class="checkbox">
      <input
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  );
}
