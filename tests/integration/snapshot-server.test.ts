import { snapshotScenario } from "../../packages/sdk/test/support/snapshot-scenario.ts";
import { startTestServer } from "../support/test-server.ts";

snapshotScenario("a server", async () => {
  const server = await startTestServer();
  return {
    connection: { baseUrl: server.url, apiKey: server.key },
    create: { driver: "local" },
    stop: () => server.dispose(),
  };
});
