import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "partitions",
    title: "Partitions",
    load: () => import("./PartitionsPage"),
    nav: { label: "Partitions", group: "Builds", order: 30, key: "p" },
  },
  // A partition's page shows its lineage; this address of it is the one that others link to.
  { path: "lineage", title: "Lineage", load: () => import("./PartitionsPage") },
];
