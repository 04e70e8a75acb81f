import { MockServer } from "@atoll/sdk/mock";
import { programs, sdkScenario } from "./support/scenario.ts";

sdkScenario("the mock", async () => {
  const mock = new MockServer();
  for (const [line, program] of Object.entries(programs)) mock.onCommand(line, program);
  return { connection: mock.connection, create: {}, stop: async () => mock.stop() };
});
