/** What a person chose for this browser: colours and the zone of times. */

import { effect, signal, type Signal } from "@preact/signals";

function kept<const T extends string>(name: string, options: readonly T[]): Signal<T> {
  let found: string | null = null;
  try {
    found = localStorage.getItem(`crannog.${name}`);
  } catch {
    // Storage is blocked: the choice lasts as long as the page.
  }
  const chosen = signal<T>(options.includes(found as T) ? (found as T) : options[0]!);
  effect(() => {
    try {
      localStorage.setItem(`crannog.${name}`, chosen.value);
    } catch {
      // As above.
    }
  });
  return chosen;
}

export const theme = kept("theme", ["system", "light", "dark"]);
export const zone = kept("zone", ["local", "utc"]);

const dark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(dark.matches);
dark.addEventListener("change", (event) => (systemIsDark.value = event.matches));

/** Whether the page is dark now. What draws on a canvas reads it, and draws again when it changes. */
export const isDark = signal(false);
effect(() => {
  isDark.value = theme.value === "system" ? systemIsDark.value : theme.value === "dark";
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
});
