import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "services",
    title: "Services",
    load: () => import("./ServicesPage"),
    nav: { label: "Services", group: "Traces", order: 20, key: "s" },
  },
];
