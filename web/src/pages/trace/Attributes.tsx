import { useState } from "preact/hooks";
import { writeJson, type Json } from "../../api/json";
import { to } from "../../app/router";
import { CopyButton, TextField } from "../../components";
import { bytes } from "../../format/numbers";

const CUT = 300;
const BASE64 = /^(?:data:([\w.+-]+\/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,)?([A-Za-z0-9+/_-]{256,}={0,2})$/;

/** Returns what a text of encoded bytes is; null for other texts. */
export function encoded(text: string): { type: string; size: number } | null {
  if (text.length < 256) return null;
  const match = BASE64.exec(text);
  // A long word of one kind of letter is more often padding or a made-up text than data.
  if (!match || (!match[1] && !/[A-Z]/.test(text.slice(0, 512)) && !/[+/_-]/.test(text))) return null;
  return { type: match[1] ?? "bytes", size: Math.floor((match[2]!.length * 3) / 4) };
}

function bytesOf(value: Json): string | null {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
  const found = value["$bytes"];
  return typeof found === "string" && Object.keys(value).length === 1 ? found : null;
}

/** A value that a sender wrote, as text: cut if it is long, never as markup, and encoded bytes only by their size. */
export function Value({ value, cut = CUT }: { value: Json; cut?: number }) {
  const [all, setAll] = useState(false);
  const raw = bytesOf(value);
  if (raw !== null) return <span class="nothing">{bytes(Math.floor((raw.length * 3) / 4))} of bytes</span>;
  const text = typeof value === "string" ? value : writeJson(value, 2);
  const data = typeof value === "string" ? encoded(text) : null;
  if (data)
    return (
      <span class="nothing">
        {bytes(data.size)} of {data.type}, as base64
      </span>
    );
  const isCut = !all && text.length > cut;
  return (
    <>
      <span class={`value${typeof value === "string" ? "" : " literal"}`}>
        {isCut ? `${text.slice(0, cut)}…` : text}
      </span>
      {isCut && (
        <button type="button" class="button quiet" onClick={() => setAll(true)}>
          Show all {bytes(text.length)}
        </button>
      )}
    </>
  );
}

/** Writes a value as the language of searches has it; null for values that cannot be searched by. */
function literal(value: Json): string | null {
  if (typeof value === "string") return value.length <= 200 ? JSON.stringify(value) : null;
  return typeof value === "number" || typeof value === "bigint" || typeof value === "boolean" ? String(value) : null;
}

interface Props {
  label: string;
  values: Record<string, Json>;
  /** Where they are, in the language of searches. */
  level: "span" | "resource" | "scope" | "event" | "link";
  /** Shows only those whose key or value has this text. */
  search?: string;
}

/** Attributes as a table. */
export function Attributes({ label, values, level, search = "" }: Props) {
  const wanted = search.trim().toLowerCase();
  const shown = Object.entries(values).filter(
    ([key, value]) =>
      !wanted ||
      key.toLowerCase().includes(wanted) ||
      (typeof value === "string" ? value : writeJson(value)).toLowerCase().includes(wanted),
  );
  if (shown.length === 0) return <p class="hint">{wanted ? "None matches." : "None."}</p>;
  return (
    <table class="attributes">
      <caption class="visually-hidden">{label}</caption>
      <tbody>
        {shown.map(([key, value]) => {
          const written = literal(value);
          return (
            <tr key={key}>
              <th scope="row">{key}</th>
              <td>
                <Value value={value} />
              </td>
              <td class="attribute-actions">
                <CopyButton
                  text={() => (typeof value === "string" ? value : writeJson(value))}
                  label="copy"
                  what={key}
                />
                {written !== null && (
                  <a
                    href={to("traces", { q: `${level}.${quoted(key)} = ${written}` })}
                    title="Search traces with this value"
                    aria-label={`find traces with this ${key}`}
                  >
                    find
                  </a>
                )}
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

/** Quotes a key where the language of searches needs it. */
function quoted(key: string): string {
  return /^[\w.\-/:@]+$/.test(key) ? key : JSON.stringify(key);
}

/** A field that narrows tables of attributes. */
export function AttributeSearch({ value, onInput }: { value: string; onInput: (value: string) => void }) {
  return (
    <TextField
      label="Search attributes"
      hideLabel
      type="search"
      placeholder="Search attributes"
      value={value}
      onInput={onInput}
    />
  );
}
