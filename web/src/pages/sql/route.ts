import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "sql",
    title: "SQL",
    load: () => import("./SqlPage"),
    nav: { label: "SQL", group: "Data", order: 20, key: "q" },
  },
];
