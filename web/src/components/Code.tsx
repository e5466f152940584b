import { useState } from "preact/hooks";
import { bytes } from "../format/numbers";
import { CopyButton } from "./CopyButton";

const CUT = 4_000;

/** A text as it is, such as JSON, SQL or a stack. Long ones are cut, with a button to show all; never markup. */
export function Code({ text, label, most = CUT }: { text: string; label: string; most?: number }) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > most;
  return (
    <div class="code">
      <CopyButton text={text} what={label} />
      <pre tabIndex={0} aria-label={label}>
        {cut ? text.slice(0, most) + "…" : text}
      </pre>
      {cut && (
        <button type="button" class="button quiet" onClick={() => setAll(true)}>
          Show all {bytes(text.length)}
        </button>
      )}
    </div>
  );
}
