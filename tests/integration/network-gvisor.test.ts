// @module-tag gvisor
import { networkContract } from "../support/network-contract.ts";

networkContract("gvisor");
