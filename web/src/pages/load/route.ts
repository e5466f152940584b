import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "load",
    title: "Load a file",
    load: () => import("./LoadPage"),
    nav: { label: "Load a file", group: "Data", order: 30, key: "l" },
    needs: "write",
  },
];
