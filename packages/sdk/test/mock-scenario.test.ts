import { MockServer } from "@atoll/sdk/mock";
import { rollbackScenario } from "./support/rollback-scenario.ts";
import { programs, sdkScenario, type ScenarioServer } from "./support/scenario.ts";
import { snapshotScenario } from "./support/snapshot-scenario.ts";

async function startMock(): Promise<ScenarioServer> {
  const mock = new MockServer();
  for (const [line, program] of Object.entries(programs)) mock.onCommand(line, program);
  return { connection: mock.connection, create: {}, stop: async () => mock.stop() };
}

sdkScenario("the mock", startMock);
snapshotScenario("the mock", startMock);
rollbackScenario("the mock", startMock);
