import { AtollClient } from "@atoll/runner";
import { Atoll } from "@atoll/sdk";
import { clientContract } from "../support/client-contract.ts";
import { startTestServer } from "../support/test-server.ts";

clientContract("gVisor", async () => {
  const server = await startTestServer();
  const client = new AtollClient({ atoll: new Atoll({ baseUrl: server.url, apiKey: server.key }) });
  return {
    client,
    [Symbol.asyncDispose]: async () => {
      await client[Symbol.asyncDispose]();
      await server.dispose();
    },
  };
});
