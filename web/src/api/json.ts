/**
 * JSON without loss: whole numbers beyond 2^53 become BigInt, all others stay numbers.
 *
 * The server writes all digits of 64-bit integers; `JSON.parse` alone would round them.
 */

export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json };

const LARGE = /-?\d{16,}/;

interface Context {
  source?: string;
}

const hasSource = (() => {
  let seen = false;
  JSON.parse("1", function (_key: string, value: unknown, context?: Context) {
    seen = context?.source === "1";
    return value;
  } as (key: string, value: unknown) => unknown);
  return seen;
})();

/** Parses a document. */
export function parseJson(text: string): unknown {
  // The reviver makes parsing several times slower: most documents have no such number.
  if (!LARGE.test(text)) return JSON.parse(text);
  if (hasSource) {
    return JSON.parse(text, function (_key: string, value: unknown, context?: Context) {
      if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
      return /^-?\d+$/.test(context?.source ?? "") ? BigInt(context!.source!) : value;
    } as (key: string, value: unknown) => unknown);
  }
  return JSON.parse(marked(text), (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

const MARK = "\u0000bigint:";

/** Writes large whole numbers outside of strings as marked strings, for browsers whose revivers do not see the source. */
function marked(text: string): string {
  return text.replace(/"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g, (found) =>
    found.startsWith('"') || Number.isSafeInteger(Number(found)) ? found : `"\\u0000bigint:${found}"`,
  );
}

/** Writes a document; BigInt becomes a whole number with all its digits. */
export function writeJson(value: unknown, indent?: number): string {
  const digits: string[] = [];
  const text = JSON.stringify(
    value,
    (_key, inner: unknown) => {
      if (typeof inner !== "bigint") return inner;
      digits.push(inner.toString());
      return `${MARK}${digits.length - 1}`;
    },
    indent,
  );
  if (text === undefined || digits.length === 0) return text;
  return text.replace(/"\\u0000bigint:(\d+)"/g, (_found, place: string) => digits[Number(place)]!);
}
