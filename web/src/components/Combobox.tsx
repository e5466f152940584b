import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface Suggestion {
  /** What the list shows. */
  text: string;
  /** What is written instead of the completed part, if that differs from `text`. */
  insert?: string;
  /** Beside it: how often, what it is. */
  note?: string;
}

export interface Suggestions {
  /** The part of the text that a suggestion replaces. */
  from: number;
  until: number;
  options: Suggestion[];
}

interface Props {
  label: string;
  value: string;
  onInput: (value: string) => void;
  /** Called when a suggestion was taken, with the whole text. */
  onChoose?: (value: string) => void;
  /** Returns what to offer at a place in the text. */
  suggest: (text: string, caret: number, signal: AbortSignal) => Promise<Suggestions>;
  placeholder?: string;
  hint?: string;
  error?: string | undefined;
  class?: string;
  mono?: boolean;
}

const PAUSE_MS = 120;
const NONE: Suggestions = { from: 0, until: 0, options: [] };

/** Completes the whole of a text, by the names that `ask` returns. */
export function wholeText(ask: (prefix: string, signal: AbortSignal) => Promise<Suggestion[]>): Props["suggest"] {
  return async (text, caret, signal) => ({
    from: 0,
    until: text.length,
    options: await ask(text.slice(0, caret), signal),
  });
}

/** A line of text with suggestions from the server: arrows choose, Enter takes, Escape closes; any other text is fine too. */
export function Combobox({ label, value, onInput, onChoose, suggest, placeholder, hint, error, mono, ...rest }: Props) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [open, setOpen] = useState(false);
  const [found, setFound] = useState(NONE);
  const [at, setAt] = useState(-1);
  const pending = useRef<{ timer?: ReturnType<typeof setTimeout>; control?: AbortController }>({});
  const stop = () => {
    clearTimeout(pending.current.timer);
    pending.current.control?.abort();
  };
  useEffect(() => stop, []);

  const ask = () => {
    stop();
    const control = new AbortController();
    pending.current.control = control;
    pending.current.timer = setTimeout(async () => {
      const field = input.current;
      if (!field) return;
      try {
        const next = await suggest(field.value, field.selectionStart ?? field.value.length, control.signal);
        if (control.signal.aborted) return;
        setFound(next);
        setAt(-1);
      } catch {
        // Suggestions are a help: without them one types on, and the search itself tells what is wrong.
        if (!control.signal.aborted) setFound(NONE);
      }
    }, PAUSE_MS);
  };
  const close = () => {
    stop();
    setOpen(false);
    setFound(NONE);
    setAt(-1);
  };
  const take = (option: Suggestion) => {
    const insert = option.insert ?? option.text;
    const next = value.slice(0, found.from) + insert + value.slice(found.until);
    const caret = found.from + insert.length;
    onInput(next);
    close();
    onChoose?.(next);
    // After the new text is in the field.
    requestAnimationFrame(() => {
      input.current?.focus();
      input.current?.setSelectionRange(caret, caret);
      if (!onChoose) {
        setOpen(true);
        ask();
      }
    });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const { options } = found;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open || !options.length) {
        setOpen(true);
        ask();
      } else {
        const step = event.key === "ArrowDown" ? 1 : -1;
        setAt((at + step + options.length + (at < 0 && step < 0 ? 1 : 0)) % options.length);
      }
    } else if (event.key === "Enter" && open && at >= 0 && options[at]) {
      event.preventDefault();
      take(options[at]);
    } else if (event.key === "Enter") {
      close();
    } else if (event.key === "Escape" && open && options.length) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  const shown = open && found.options.length > 0;
  useEffect(() => {
    if (at >= 0) document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <div class={`field combobox ${rest.class ?? ""}`}>
      <label for={id}>{label}</label>
      <input
        ref={input}
        id={id}
        class={mono ? "mono" : undefined}
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={shown}
        aria-controls={`${id}-list`}
        aria-activedescendant={shown && at >= 0 ? `${id}-${at}` : undefined}
        aria-describedby={hint || error ? `${id}-hint` : undefined}
        aria-invalid={error ? true : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder}
        value={value}
        onInput={(event) => {
          onInput(event.currentTarget.value);
          setOpen(true);
          ask();
        }}
        onClick={() => {
          setOpen(true);
          ask();
        }}
        onBlur={close}
        onKeyDown={onKeyDown}
      />
      <div role="listbox" id={`${id}-list`} aria-label="Suggestions" hidden={!shown}>
        {shown &&
          found.options.map((option, index) => (
            <div
              key={option.text}
              id={`${id}-${index}`}
              role="option"
              aria-selected={index === at}
              // Before the field loses the focus.
              onMouseDown={(event) => {
                event.preventDefault();
                take(option);
              }}
            >
              <span class="name">{option.text}</span>
              {option.note && <span class="hint">{option.note}</span>}
            </div>
          ))}
      </div>
      {(hint || error) && (
        <div class={error ? "field-error" : "hint"} id={`${id}-hint`}>
          {error ? `✕ ${error}` : hint}
        </div>
      )}
    </div>
  );
}
