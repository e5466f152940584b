import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "upkeep",
    title: "Upkeep",
    load: () => import("./UpkeepPage"),
    nav: { label: "Upkeep", group: "Operate", order: 10, key: "u" },
  },
];
