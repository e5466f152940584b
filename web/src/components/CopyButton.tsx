import { toast } from "./Toast";

/** Copies a text and says so. */
export async function copyText(text: string, what?: string): Promise<void> {
  await copy(text);
  toast(`${what ? what[0]!.toUpperCase() + what.slice(1) : "Text"} copied`);
}

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https a browser offers no clipboard: the old way still works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** Copies a text. */
export function CopyButton({
  text,
  label = "Copy",
  what,
}: {
  text: string | (() => string);
  label?: string;
  what?: string;
}) {
  return (
    <button
      type="button"
      class="button quiet copy"
      aria-label={what ? `Copy ${what}` : undefined}
      onClick={() => void copyText(typeof text === "string" ? text : text(), what)}
    >
      {label}
    </button>
  );
}
