// @module-tag gvisor
import { rollbackScenario } from "../../packages/sdk/test/support/rollback-scenario.ts";
import { sdkScenario, type ScenarioServer } from "../../packages/sdk/test/support/scenario.ts";
import { startTestServer } from "../support/test-server.ts";

async function start(): Promise<ScenarioServer> {
  const server = await startTestServer();
  return {
    connection: { baseUrl: server.url, apiKey: server.key },
    create: { driver: "gvisor" },
    stop: () => server.dispose(),
  };
}

sdkScenario("a server, gVisor", start);
rollbackScenario("a server, gVisor", start);
