import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  { path: "", title: "", load: () => import("./HomePage"), nav: { label: "Home", group: "", order: 0, key: "h" } },
];
