import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "jobs",
    title: "Jobs",
    load: () => import("./JobsPage"),
    nav: { label: "Jobs", group: "Builds", order: 20, key: "j" },
  },
];
