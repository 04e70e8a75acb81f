export type { MockProcess, MockProgram } from "./mock-command.ts";
export { MockServer, type MockConnection } from "./mock-server.ts";
