// @module-tag gvisor
import { portContract } from "../support/port-contract.ts";

portContract("gvisor");
