/** Colours for names: the same name has the same colour on every page. The palette is that of `tokens.css`. */

export const COLOURS = 10;

/** Returns the number of a name's colour, from 0. */
export function colourOf(name: string): number {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index++) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  // Mixed once more: the last digits of the sum alone tell short names apart badly.
  hash = Math.imul(hash ^ (hash >>> 16), 0xed5ad4bb);
  return ((hash ^ (hash >>> 17)) >>> 0) % COLOURS;
}

/** Returns a colour for CSS: `var(--series-3)`. */
export function seriesVariable(index: number): string {
  return `var(--series-${((index % COLOURS) + COLOURS) % COLOURS})`;
}

/** Returns what a variable of the style sheet is now: for canvases, which know no variables. */
export function cssValue(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
