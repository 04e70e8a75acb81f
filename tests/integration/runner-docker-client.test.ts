import { DockerClient } from "@atoll/runner";
import { clientContract, type OpenedClient } from "../support/client-contract.ts";
import { engineMissing, startContainerEngine } from "../support/container-engine.ts";

async function open(program: "docker" | "podman"): Promise<OpenedClient> {
  const engine = await startContainerEngine(program);
  const { globalArgs, env, image } = engine;
  return {
    client: new DockerClient({ program, globalArgs, env }),
    config: { image },
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
}

clientContract("docker", () => open("docker"), await engineMissing("docker"));
clientContract("podman", () => open("podman"), await engineMissing("podman"));
