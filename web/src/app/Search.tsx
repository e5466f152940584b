/** The one box that finds a table, a service, a trace by its id, a build, or a page. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { findNames, type FoundName } from "../api/search";
import { mayAnywhere } from "../api/session";
import { useAnswer } from "../api/useAnswer";
import { Dialog } from "../components/Dialog";
import { pages } from "./pages";
import { go, to } from "./router";

interface Found {
  kind: string;
  name: string;
  href: string;
}

const MOST = 12;

/** Finds what the names of things and the words of a person have in common; the best first. */
export function ranked(all: readonly Found[], words: string): Found[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const scored = [];
  for (const found of all) {
    const name = `${found.name} ${found.kind}`.toLowerCase();
    if (!wanted.every((word) => name.includes(word))) continue;
    const own = found.name.toLowerCase();
    const first = wanted[0] ?? "";
    const score =
      own === first
        ? 0
        : own.startsWith(first)
          ? 1
          : own.split(/[./\s-]/).some((part) => part.startsWith(first))
            ? 2
            : 3;
    scored.push({ found, score });
  }
  scored.sort((left, right) => left.score - right.score || left.found.name.length - right.found.name.length);
  return scored.slice(0, MOST).map((each) => each.found);
}

const LINKS: Record<string, (found: FoundName) => string> = {
  table: (found) => to("tables", found.name),
  service: (found) => to("traces", { service: found.name }),
  operation: (found) => to("traces", { service: found.service, operation: found.name }),
  trace: (found) => to("traces", found.name),
  build: (found) => to("builds", found.name),
};

const PAUSE_MS = 150;

/** Waits until a person pauses, then asks the server. */
async function ask(words: string, signal: AbortSignal): Promise<Found[]> {
  await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  if (signal.aborted) return [];
  const found = await findNames({ q: words, limit: 6 }, signal);
  return found.flatMap((each) => {
    const href = LINKS[each.kind]?.(each);
    const kind = each.service ? `${each.kind} of ${each.service}` : each.kind;
    return href ? [{ kind, name: each.name, href }] : [];
  });
}

export function Search({ onClose }: { onClose: () => void }) {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const trimmed = words.trim().slice(0, 200);
  const answer = useAnswer((signal) => ask(trimmed, signal), [trimmed], { when: trimmed.length > 0 });
  useEffect(() => input.current?.focus(), []);

  const results = useMemo(() => {
    const own: Found[] = pages
      .filter((page) => page.nav && mayAnywhere(page.needs ?? "read"))
      .map((page) => ({ kind: "page", name: page.nav!.label, href: to(...(page.path ? page.path.split("/") : [])) }));
    return [...ranked(own, words), ...(answer.data ?? [])];
  }, [words, answer.data]);

  const open = (found: Found | undefined) => {
    if (!found) return;
    onClose();
    go(found.href);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (next !== undefined && results.length) {
      event.preventDefault();
      setAt((next + results.length) % results.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(results[at]);
    } else if (event.key === "Escape") {
      // A field of type search would only be cleared.
      event.preventDefault();
      onClose();
    }
  };
  return (
    <Dialog title="Find" onClose={onClose}>
      <div class="search">
        <input
          ref={input}
          type="search"
          role="combobox"
          aria-label="Find a table, service, trace id, build id or page"
          aria-expanded="true"
          aria-controls="found"
          aria-activedescendant={results.length ? `found-${at}` : undefined}
          placeholder="Table, service, trace id, build id, page …"
          value={words}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => {
            setWords(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={onKeyDown}
        />
        {results.length > 0 ? (
          <ul role="listbox" id="found" aria-label="Found">
            {results.map((found, index) => (
              <li
                key={found.href + found.kind}
                id={`found-${index}`}
                role="option"
                aria-selected={index === at}
                onMouseMove={() => setAt(index)}
                onClick={() => open(found)}
              >
                <span class="name">{found.name}</span>
                <span class="hint">{found.kind}</span>
              </li>
            ))}
          </ul>
        ) : (
          <p id="found" class="hint" role="status">
            {answer.loading
              ? "Looking …"
              : "Nothing has this name. A trace is found by the first 8 digits of its id or more."}
          </p>
        )}
      </div>
    </Dialog>
  );
}
