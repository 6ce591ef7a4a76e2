//! Two convolutions and two dense layers, and what a step of training is.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

use crate::data::{CLASSES, Digits};

#[derive(Module, Debug)]
pub(crate) struct Model {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: AdaptiveAvgPool2d,
    dropout: Dropout,
    linear1: Linear,
    linear2: Linear,
    activation: Relu,
}

impl Model {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            conv1: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            conv2: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([8, 8]).init(),
            dropout: DropoutConfig::new(0.5).init(),
            linear1: LinearConfig::new(16 * 8 * 8, 512).init(device),
            linear2: LinearConfig::new(512, CLASSES).init(device),
            activation: Relu::new(),
        }
    }

    /// Scores `[batch, class]` of images `[batch, row, column]`.
    fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let hidden = self.conv1.forward(images.unsqueeze_dim::<4>(1));
        let hidden = self.conv2.forward(self.dropout.forward(hidden));
        let hidden = self.activation.forward(self.dropout.forward(hidden));
        let hidden = self.pool.forward(hidden).flatten::<2>(1, 3);
        let hidden = self.dropout.forward(self.linear1.forward(hidden));
        self.linear2.forward(self.activation.forward(hidden))
    }

    fn classify(&self, digits: Digits) -> ClassificationOutput {
        let output = self.forward(digits.images);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), digits.classes.clone());
        ClassificationOutput::new(loss, output, digits.classes)
    }
}

impl TrainStep for Model {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, digits: Digits) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(digits);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Model {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, digits: Digits) -> ClassificationOutput {
        self.classify(digits)
    }
}
