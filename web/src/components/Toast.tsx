import { signal } from "@preact/signals";

interface Note {
  id: number;
  text: string;
  tone: "ok" | "error";
}

const LASTS_MS = 6_000;
const notes = signal<Note[]>([]);
let last = 0;

/** Says for a moment that something was done, or went wrong. */
export function toast(text: string, tone: "ok" | "error" = "ok"): void {
  const note = { id: ++last, text, tone };
  notes.value = [...notes.value.slice(-3), note];
  setTimeout(() => (notes.value = notes.value.filter((each) => each !== note)), LASTS_MS);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notes.value.map((note) => (
        <div key={note.id} class={`toast ${note.tone}`}>
          <span aria-hidden="true">{note.tone === "ok" ? "✓" : "✕"}</span> {note.text}
        </div>
      ))}
    </div>
  );
}
