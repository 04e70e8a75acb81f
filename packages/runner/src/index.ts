export type * from "./client/sandbox-client.ts";
export type * from "./compat/compat-fix.ts";
export type * from "./journal/events.ts";
export * from "./models/command.ts";
export * from "./models/report.ts";
export * from "./models/sandbox-config.ts";
export * from "./models/task.ts";
export type * from "./parsers/parser.ts";
