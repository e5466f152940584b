import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "builds",
    title: "Builds",
    load: () => import("./BuildsPage"),
    nav: { label: "Builds", group: "Builds", order: 10, key: "b" },
  },
  { path: "builds/compare", title: "Two builds", load: () => import("./ComparePage") },
  { path: "builds/:buildId", title: "Build", load: () => import("./BuildPage") },
];
