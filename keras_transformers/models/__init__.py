"""Models: one architecture a file, made of `keras_transformers.layers`."""

from keras_transformers.models.deformable_detr import DeformableDETR
from keras_transformers.models.detr import DETR
from keras_transformers.models.detr_queries import (
    AnchorQueries,
    LearnedQueries,
    ObjectQueries,
    PointProposals,
    PointQueries,
    ProposalQueries,
    ReferenceQueries,
)
from keras_transformers.models.dual_encoder import DualEncoder
from keras_transformers.models.image_model import ImagePooling
from keras_transformers.models.language_model import LanguageModel
from keras_transformers.models.mae import MAE
from keras_transformers.models.mvit import MViT
from keras_transformers.models.pvt import PVT
from keras_transformers.models.recurrent import RecurrentTranslator
from keras_transformers.models.resnet import ResNet
from keras_transformers.models.segformer import SegFormer
from keras_transformers.models.set_detector import FeatureMap, FeatureMaps
from keras_transformers.models.swin import Swin
from keras_transformers.models.text_encoder import TextEncoder
from keras_transformers.models.text_heads import (
    AlignmentHead,
    ClassificationHead,
    EndPooling,
    HeadTransform,
    LanguageHead,
    LastPooling,
    MaskedLanguageHead,
    SpanHead,
    TaggingHead,
)
from keras_transformers.models.text_model import TextEmbedding
from keras_transformers.models.transformer import Transformer
from keras_transformers.models.vit import ImageEmbedding, ViT

__all__ = [
    "AlignmentHead",
    "DETR",
    "DeformableDETR",
    "MAE",
    "AnchorQueries",
    "ClassificationHead",
    "DualEncoder",
    "EndPooling",
    "FeatureMap",
    "FeatureMaps",
    "ImageEmbedding",
    "ImagePooling",
    "HeadTransform",
    "LanguageHead",
    "LanguageModel",
    "LastPooling",
    "LearnedQueries",
    "MViT",
    "MaskedLanguageHead",
    "PVT",
    "RecurrentTranslator",
    "ObjectQueries",
    "PointProposals",
    "PointQueries",
    "ProposalQueries",
    "ReferenceQueries",
    "ResNet",
    "SpanHead",
    "SegFormer",
    "Swin",
    "TaggingHead",
    "TextEmbedding",
    "TextEncoder",
    "Transformer",
    "ViT",
]
