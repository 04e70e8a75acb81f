import { defineSupervisor } from "@atoll/live/app";
import { plugin } from "./plugin.ts";

export default defineSupervisor({ children: [{ id: "plugin", start: [plugin] }] });
