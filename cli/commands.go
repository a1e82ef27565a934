package cli

import (
	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

// addCommands gives the root all commands that speak to an instance.
func (c *CLI) addCommands(root *cobra.Command) {
	root.AddCommand(
		c.tokenCommand(),
		c.nodeCommand(),
		c.loginCommand(),
		c.logoutCommand(),
		c.authorityCommand(),

		c.exampleCommand(),
		c.planCommand(),
		c.applyCommand(),
		c.setCommand(),
		c.faultsCommand(),
		c.saveCommand(),
		c.exportCommand(),
		c.importCommand(),
		c.convertCommand(),
		c.embedCommand(),
		c.deleteCommand(),
		c.forgetCommand(),
		c.quotaCommand(),
		c.policyCommand(),
		c.watchCommand(),

		c.trashCommand(),
		c.imageCommand(),
		c.recoverCommand(),

		c.getCommand(),
		c.describeCommand(),
		c.graphCommand(),
		c.topCommand(),
		c.metricsCommand(),
		c.checkCommand(),
		c.trafficCommand(),

		c.actCommand(model.ActionStart, "Start stopped elements and links", "started"),
		c.actCommand(model.ActionStop, "Stop elements and links; what elements own on disk stays", "stopped"),
		c.actCommand(model.ActionRestart, "Stop elements and start them again", "restarted"),
		c.actCommand(model.ActionSuspend, "Hold elements' processes; packets are forwarded on", "suspended"),
		c.actCommand(model.ActionResume, "Let suspended elements' processes go on", "resumed"),
		c.moveCommand(),
		c.quarantineCommand(),
		c.releaseCommand(),
		c.execCommand(),
		c.copyCommand(),
		c.consoleCommand(),
		c.pingCommand(),
		c.traceCommand(),
		c.logsCommand(),
		c.captureCommand(),

		c.completionCommand(),
		c.schemaCommand(),
		c.versionCommand(),
		c.gendocsCommand(),
	)
}
