import type { LiveManager } from "@atoll/live";
import type { Column } from "../output/table.ts";

export type Services = Awaited<ReturnType<LiveManager["inspect"]>>["services"];

export const serviceColumns: Column<Services[number]>[] = [
  { header: "SERVICE", cell: ({ name }) => name },
  {
    header: "STATE",
    cell: ({ state }) => state,
    tone: ({ state }) => (state === "running" ? "good" : "busy"),
  },
  { header: "VERSION", cell: ({ version }) => String(version), align: "right" },
  { header: "MESSAGES", cell: ({ messages }) => String(messages), align: "right" },
  { header: "WAITING", cell: ({ mailbox }) => String(mailbox), align: "right", isDetail: true },
  { header: "RESTARTS", cell: ({ restarts }) => String(restarts), align: "right" },
  { header: "MODULE", cell: ({ module }) => module },
];
