export * from "./stress.ts";
export * from "./test-app.ts";
