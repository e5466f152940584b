import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  { path: "traces/:traceId", title: "Trace", load: () => import("./TracePage") },
  { path: "traces/compare", title: "Compare traces", load: () => import("./ComparePage") },
];
