import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startTestApp } from "@atoll/live/testing";

const app = await startTestApp(
  {
    "src/app.ts": `import { defineService, defineSupervisor } from "@atoll/live/app";
      export const greeter = defineService({
        init: () => ({}), call: { hello: (state, name: string) => "hello " + name } });
      export default defineSupervisor({ children: [{ id: "greeter", start: [greeter] }] });`,
  },
  { config: { typeCheck: "off", isolation: "process" } },
);
after(() => app.stop());

await test("an app answers", async () => {
  await app.assertRunning();
  assert.equal(await app.call("greeter", "hello", "Ada"), "hello Ada");
});
