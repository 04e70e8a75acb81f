export type { MockProcess, MockProgram } from "./mock-command.ts";
export { MockServer } from "./mock-server.ts";
