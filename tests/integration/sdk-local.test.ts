import { sdkScenario } from "../../packages/sdk/test/support/scenario.ts";
import { startTestServer } from "../support/test-server.ts";

sdkScenario("a server, local driver", async () => {
  const server = await startTestServer();
  return {
    connection: { baseUrl: server.url, apiKey: server.key },
    create: { driver: "local" },
    stop: () => server.dispose(),
  };
});
