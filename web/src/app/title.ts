import { useEffect } from "preact/hooks";

/** Sets the title of the browser's tab while a page is shown. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Crannog` : "Crannog";
  }, [title]);
}
