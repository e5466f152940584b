import type { PageRoute } from "../../app/pages";

export const routes: PageRoute[] = [
  {
    path: "conversations",
    title: "Conversations",
    load: () => import("./ConversationsPage"),
    nav: { label: "Conversations", group: "Traces", order: 40, key: "c" },
  },
  { path: "conversations/:sessionId", title: "Conversation", load: () => import("./ConversationPage") },
];
