import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "audit",
    title: "Audit",
    load: () => import("./AuditPage"),
    nav: { label: "Audit", group: "Operate", order: 20, key: "a" },
    needs: "admin",
  },
];
