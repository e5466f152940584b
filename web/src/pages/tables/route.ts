import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "tables",
    title: "Tables",
    load: () => import("./TablesPage"),
    nav: { label: "Tables", group: "Data", order: 10, key: "d" },
  },
  { path: "tables/:name", title: "Table", load: () => import("./TablePage") },
];
