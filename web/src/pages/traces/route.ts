import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "traces",
    title: "Traces",
    load: () => import("./TracesPage"),
    nav: { label: "Traces", group: "Traces", order: 10, key: "t" },
  },
];
