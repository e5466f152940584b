import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "erase",
    title: "Erase",
    load: () => import("./ErasePage"),
    nav: { label: "Erase", group: "Operate", order: 30, key: "e" },
    needs: "admin",
  },
  { path: "receipts/:receiptId", title: "Receipt", load: () => import("./ReceiptPage") },
];
