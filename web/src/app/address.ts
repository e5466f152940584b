/**
 * State of a page that lives in its address, so that a link reopens the same view.
 *
 *     const [state, set] = useAddress({ service: text(), order: choice(["newest", "slowest"]), limit: whole(50) });
 *     set({ service: "shop" });                  // replaces the entry of the browser's history
 *     set({ open: span }, { push: true });       // adds one: the back button returns
 */

import { useCallback, useMemo, useRef } from "preact/hooks";
import { place, setQuery } from "./router";

/** How one value is written in the address; values that equal the fallback are left out. */
export interface Parameter<T> {
  fallback: T;
  read: (values: string[]) => T;
  write: (value: T) => string[];
}

export function text(fallback = ""): Parameter<string> {
  return { fallback, read: ([value]) => value ?? fallback, write: (value) => [value] };
}

export function whole(fallback: number): Parameter<number> {
  const read = ([value]: string[]) => (value !== undefined && /^-?\d{1,15}$/.test(value) ? Number(value) : fallback);
  return { fallback, read, write: (value) => [String(value)] };
}

/** A whole number of any size, such as nanoseconds since 1970; null if it is missing. */
export function large(): Parameter<bigint | null> {
  return {
    fallback: null,
    read: ([value]) => (value !== undefined && /^-?\d{1,30}$/.test(value) ? BigInt(value) : null),
    write: (value) => (value === null ? [] : [String(value)]),
  };
}

export function flag(fallback = false): Parameter<boolean> {
  return {
    fallback,
    read: ([value]) => (value === undefined ? fallback : value === "1"),
    write: (on) => [on ? "1" : "0"],
  };
}

export function choice<const T extends string>(options: readonly T[], fallback: T = options[0]!): Parameter<T> {
  const read = ([value]: string[]) => (options.includes(value as T) ? (value as T) : fallback);
  return { fallback, read, write: (value) => [value] };
}

const NONE: string[] = [];

/** Several texts, each a parameter of the same name. */
export function list(): Parameter<string[]> {
  return { fallback: NONE, read: (values) => (values.length ? values : NONE), write: (values) => values };
}

type Shape = Record<string, Parameter<any>>;
export type StateOf<S extends Shape> = { [N in keyof S]: S[N]["fallback"] extends infer T ? Widened<T> : never };
type Widened<T> = T extends boolean ? boolean : T;
export type SetState<S extends Shape> = (changes: Partial<StateOf<S>>, options?: { push?: boolean }) => void;

function same(left: string[], right: string[]): boolean {
  return left.length === right.length && left.every((each, index) => each === right[index]);
}

/** Reads the state of a shape, and returns how to change it. Parameters of other names stay as they are. */
export function useAddress<const S extends Shape>(shape: S): [StateOf<S>, SetState<S>] {
  const known = useRef(shape).current;
  const query = place.value.query;
  const state = useMemo(() => {
    const found: Record<string, unknown> = {};
    for (const [name, parameter] of Object.entries(known)) found[name] = parameter.read(query.getAll(name));
    return found as StateOf<S>;
  }, [query]);
  const set = useCallback<SetState<S>>((changes, options) => {
    const next = new URLSearchParams(place.value.query);
    for (const [name, value] of Object.entries(changes)) {
      const parameter = known[name];
      if (parameter === undefined || value === undefined) continue;
      next.delete(name);
      const written = parameter.write(value);
      if (!same(written, parameter.write(parameter.fallback))) for (const each of written) next.append(name, each);
    }
    setQuery(next, options?.push ?? false);
  }, []);
  return [state, set];
}
